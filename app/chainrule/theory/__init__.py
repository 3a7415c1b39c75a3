"""Expected figures, to stand beside the recorded ones: mean-field theory and its finite-width corrections.

In the order to read:

- `gaussian`: expectations under a standard normal, by quadrature, and Hermite series;
- `activations`: the nine activations and their derivatives, in numpy;
- `mean_field`: infinite width: variance, gradient and correlation from layer to layer, fixed points, depth scales;
- `laws`: how figures stray over draws, for all layers at once;
- `dead_units`: how many units of a rectified layer are dead;
- `unit`: one unit of a layer, as a random function of the batch;
- `forward`, `backward`: a whole net's activations and gradients, layer by layer;
- `layer_statistics`: each layer's expected figures and their bands;
- `local`: the same for one layer, from statistics of its input.
"""
