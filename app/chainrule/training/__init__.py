"""What a training shows beside the pictures of its steps: curves, held-out samples, decision surfaces, confusions."""
