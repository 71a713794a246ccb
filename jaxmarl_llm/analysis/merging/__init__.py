"""`experiments.merge`: merge the weights of several agents, choose on validation, measure on the test."""
