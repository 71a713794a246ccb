"""The side that runs foreign text: the zygote, its watch over CPU time, and the candidate itself."""
