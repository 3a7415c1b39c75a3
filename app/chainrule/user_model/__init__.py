"""A user's model: any PyTorch code, run from its file, changed by a what-if, and traced.

file.py:factory ─▶ code ─▶ Subject ─▶ UserModel ─▶ Tracer ─▶ Trace
"""
