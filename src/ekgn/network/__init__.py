"""The model section of the paper, one file per box of its figure, and the loop over them.

Shape letters: T steps, L = T - 1 lookups, B queries in a batch, H state size, M memory slots,
G = 3 H gates, E = 4 H gates and query, K output size, P (query, answer) pairs, N candidate answers.
"""
