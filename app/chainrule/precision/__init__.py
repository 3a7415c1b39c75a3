"""A user's model in two precisions: the error of each tensor beside what rounding predicts."""
