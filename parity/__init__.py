"""Does a model trained under a parallel layout still compute the same thing as the plain run?"""

__version__ = "0.1.0"
