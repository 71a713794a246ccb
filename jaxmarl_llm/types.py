"""Dimension letters used as array suffixes; there is no code here.

Arrays carry their dimensions in their names, e.g. ``logits_BLV``:

====== ==========================================================
letter meaning
====== ==========================================================
N      agents of a stack
B      prompts, or rows of a batch in general
G      samples of one prompt (the group)
R      rows of a fanned-out batch, R = B * G
T      turns
L      tokens of a completion (or of any token axis)
P      tokens of a padded prompt
S      slots of a key/value cache
V      vocabulary
D      model width
Y      layers
Q      query heads
K      key/value heads
H      width of one head
====== ==========================================================
"""
