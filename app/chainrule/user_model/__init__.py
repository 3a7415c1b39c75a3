"""A user's own model: any PyTorch code, run from its file, changed on a copy and traced.

    file.py:factory ─▶ code ─▶ Subject ─▶ UserModel ─▶ Tracer ─▶ Trace
                               (a what-if says what is changed on a copy first)

code.py        runs a file, and runs it again after an edit; finds the line in it that raised
subject.py     checks what a factory returned: a model, its inputs, a function from output to loss
what_if.py     what is changed: a scale or a new draw, of all parameters or of one group
tracer.py      one copy of the model, traced again and again
model.py       the current subject, and who is notified of the next one
watch.py       runs a changed file again
"""
