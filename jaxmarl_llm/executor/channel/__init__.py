"""What passes between a candidate's process and the tests: values, handles of objects, calls and answers."""
