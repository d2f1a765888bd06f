"""Train a small convolutional network on real handwritten digits, on tiny and on XLA:CPU.

python -m demo
"""
