"""What is wrong with a trace, why, where, and what helps: figures per layer beside theory, rules, faults, advice."""
