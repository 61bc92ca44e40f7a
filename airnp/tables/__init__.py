"""Tables on disk: matrices with gaps and labels, read from and written to the formats people have.

======================  ============================================  =======================
suffix                  what is missing                               labels
======================  ============================================  =======================
.csv .tsv, also .gz     empty cells, NaN, NA, null, …                 header and one column
.parquet                nulls and NaN                                 columns and index
.npz                    NaN; in a sparse matrix what is not stored    arrays rows and columns
.npy                    NaN                                           none
.mtx, also .gz          what is not stored                            none
======================  ============================================  =======================

:mod:`airnp.tables.sheets` reads tables with columns of any kind, :mod:`airnp.tables.kinds` turns them into
numbers and back, and :mod:`airnp.tables.imputation` fills their gaps.

Numbers are read exactly and written with as many digits as bring them back.
"""

from __future__ import annotations

from airnp.tables.binary import holds_result
from airnp.tables.files import SUFFIXES, kind_of, read, read_sparse, write
from airnp.tables.table import Reading, Table, TableError

__all__ = [
    "SUFFIXES",
    "Reading",
    "Table",
    "TableError",
    "holds_result",
    "kind_of",
    "read",
    "read_sparse",
    "write",
]
