"""Knowledge fusion (FuseLLM, arXiv 2401.10491): the distributions of several teachers at the tokens of one student.

`pieces` are tokens as bytes, `align` brings what a teacher expects to the student's tokens by the bytes of the text
that both read, `edits` does it by the paper's edit distances, `fuse` makes one distribution of those of all teachers,
`texts` are the texts with who teaches which part, `cache` keeps what the teachers expect on disk, `scores` asks them.
"""
