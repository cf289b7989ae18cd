"""Cast the inside of a model to float16 or bfloat16, with unchanged inputs and outputs."""
