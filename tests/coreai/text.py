"""Two programs as Apple's library prints them, every constant to its last element; exit status 1: they differ.

    text.py A.mlirb B.mlirb
"""
import sys
from coreai._compiler.context import Context
from coreai._compiler.ir import Module


def text(path):
    with Context():
        return Module.parseFile(path).operation.get_asm(enable_debug_info=False)


sys.exit(text(sys.argv[1]) != text(sys.argv[2]))
