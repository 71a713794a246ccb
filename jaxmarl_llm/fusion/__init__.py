"""Knowledge fusion (FuseLLM, arXiv 2401.10491): the distributions of several teachers at the tokens of one student.

`pieces` are tokens as bytes. `align` maps a teacher's distributions to the student's tokens by the bytes of
the common text, `edits` by the paper's edit distances. `fuse` makes one distribution from those of all
teachers. `texts` are texts with their teachers, `scores` computes the teachers' distributions, `cache` stores
them.
"""
