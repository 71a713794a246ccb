"""`experiments.merge`: several agents' weights become one agent's, chosen on validation, measured on the test."""
