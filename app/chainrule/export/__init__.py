"""A trace in the languages of other tools: Graphviz (`dot`) and Google's Model Explorer (`model_explorer`)."""
