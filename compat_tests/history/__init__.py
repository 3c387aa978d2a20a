"""Histories: what concurrent clients did and saw while a broker was ill-treated, and whether a log explains it."""
