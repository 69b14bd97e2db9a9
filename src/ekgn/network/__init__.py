"""The model section of the paper, one file per box of its figure.

Shape letters: T steps, L = T - 1 lookups, B queries in a batch, H state size, M memory slots,
K output size, P (query, answer) pairs, N candidate answers.
"""
