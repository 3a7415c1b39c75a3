"""Diagnosis of a trace: figures per layer beside theory, verdicts and their rules, faults, advice."""
