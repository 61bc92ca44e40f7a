"""How well and how fast tables are imputed, beside scikit-learn's imputers and others.

    python -m bench.tables                       all tables × MCAR, MAR, MNAR × 10, 30, 50 % × 5 masks
    python -m bench.tables --half tuning         only the tables that settings may be chosen on
    python -m bench.tables --half strange        tables unlike the others; --half sealed: more of them
    python -m bench.tables --folder DIR          the protocol of HyperImpute and ReMasker on CSV files
    python -m bench.tables --tall                100 000 × 50, beside IterativeImputer
    python -m bench.tables --imputations 200     coverage of a regression coefficient after imputations

Every cell is written to ``--results`` as soon as it is done, and is not computed again.
"""
