"""What another repository's tests import: the suite's test classes, and the corpus of reported faults.

``from draftproof.testing import TestShape`` in a test module gives one test per pair of ``contracts/pairs/`` and rung;
``from draftproof.testing import corpus`` gives the checkpoint pairs that show what public reports describe.
"""

from draftproof.testing.test_shape import TestShape

__all__ = ["TestShape"]
