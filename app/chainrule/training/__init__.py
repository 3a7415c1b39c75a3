"""The other results of a training besides its steps: curves, held-out samples, decision surfaces, confusions."""
