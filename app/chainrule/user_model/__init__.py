"""A user's model: any PyTorch code, run from its file, changed by a what-if, and traced.

    file.py:factory ─▶ code ─▶ Subject ─▶ UserModel ─▶ Tracer ─▶ Trace

code.py        runs a file, and runs it again after an edit; finds the line in it that raised
subject.py     checks the value of a factory: a model, its inputs, a function from output to loss
copies.py      copies a subject with the functions that hold it
what_if.py     the keys of a what-if: a scale or a new draw, of all parameters or of one group
parameters.py  changes a model's parameters for a pass, and puts the model back
tracer.py      traces a subject, again and again
model.py       the current subject, and the listeners to a change of it
seeded.py      seeds every generator, and restores them
watch.py       runs a changed file again
"""
