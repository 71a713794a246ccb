"""C++ candidates: their signature, the confined compiler, and calls into the library that it built."""
