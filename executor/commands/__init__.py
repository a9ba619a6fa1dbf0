"""The commands of ``dispatch.py``, a module each, with ``main(arguments) -> exit status``."""
