"""Renderers of a finished `Run`: terminal table, JSON, CSV, Markdown, JUnit.

They read records and compute nothing statistical. Every number that a person reads is formatted in
`rows`, every number that a program reads is written in full.
"""
