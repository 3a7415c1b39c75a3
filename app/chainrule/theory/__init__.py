"""What *should* be seen, to stand beside what is: mean-field theory and its finite-width corrections.

In the order to read:

- `gaussian`: expectations under a standard normal, by quadrature, and Hermite series;
- `activations`: the nine activations and their derivatives, in numpy;
- `mean_field`: infinite width: variance, gradient and correlation from layer to layer, fixed points, depth scales;
- `finite_width`: how far a net of finite width strays from that, and how many of its units are dead;
- `laws`: how figures stray over draws, for all layers at once;
- `unit`: one unit of a layer, as a random function of the batch;
- `forward`, `backward`: a whole net's activations and gradients, layer by layer;
- `layer_statistics`: each layer's figures, with the band they should lie in.
"""
