"""What tinyhlo asks of cuda-python, over an emulated GPU."""
