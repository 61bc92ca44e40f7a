"""What each figure shows, with which settings, what the paper says of it, and whether ours says the same."""

from __future__ import annotations

from dataclasses import dataclass

COMMON = "float32, seed 0, Adam 1e-3"
AUTHORS = "AIR has the λ = 1e-4 of the authors' program for both graphs"


@dataclass(frozen=True)
class Caption:
    """The words below a figure; ``paper`` and ``ours`` speak of the full figure, not of a quick one."""

    name: str
    title: str
    shows: str
    settings: str
    paper: str
    ours: str

    @property
    def command(self) -> str:
        return f"python -m bench.figures --only {self.name}"


_ALL = (
    Caption(
        "depth",
        "Depth of DMF",
        "Mean squared error on missing against observed entries while DMF is trained with two, three and "
        "four factors; training goes from left to right and ends at the diamond.",
        f"{COMMON}. A run ends when the observed error is below 1e-3. Rank-5: 100×100, variance 1, not "
        "brought to [0, 1], which would raise its rank. Total variation has λ = 0.01/(m·n).",
        "Depth helps on a matrix of low rank (a), harms on Barbara (b), helps again with total variation "
        "(c); on other gaps and other data total variation loses its use (d, e, f).",
        "**The same in all six, for two factors against more.** The missing error at the end, for L = 2, "
        "3, 4: (a) 0.28, 0.010, 0.012; (b) 0.016, 0.037, 0.040; (c) 0.0087, 0.0069, 0.0069; (d) 0.025, "
        "0.041, 0.040; (e) 0.014, 0.030, 0.029; (f) 0.027, 0.030, 0.033. **Three and four factors hardly "
        "differ.** In (a) both are still falling steeply when they end, so their order depends on the "
        "record at which they end: with a record every 100 iterations instead of 20 it was 0.0043 and "
        "0.0028.",
    ),
    Caption(
        "singular_values",
        "Singular values of DMF",
        "The twelve largest singular values while DMF is trained (the runs a, b and c of the figure "
        "above), and the error on missing entries.",
        f"{COMMON}; as above.",
        "It says of DMF that singular values grow at different speeds, and the more so the deeper it is. "
        "It has no picture of them.",
        "**The same.** With two factors they grow together; with three and four one after the other, in "
        "steps. On the rank-5 matrix exactly five grow with three factors and with four, while two "
        "factors also raise others. On Barbara the error on missing entries falls while the first ones "
        "grow and rises when the later ones come; with total variation it goes on falling.",
    ),
    Caption(
        "graphs_baboon",
        "Learned graphs: Baboon",
        "The graphs that AIR has learned over rows (top) and columns (bottom), darker = more alike, "
        "without the diagonal and on one logarithmic scale, beside the true distances of rows and "
        "columns.",
        f"{COMMON}. 30 % missing; {AUTHORS}; 10 000 iterations. Mean degree: what is left of the graph, 1 "
        "at first.",
        "Blocks at t = 4000, finer structure at 7000, and almost nothing at 10 000.",
        "**The same.** The mean degree falls from 0.94 over 0.61 to 0.02. The learned weights follow the "
        "true distances of the complete picture (rank correlation 0.80 to 0.87), and move towards the "
        "diagonal: the share on the two nearest lines on each side grows from 0.13–0.18 to more than 0.8.",
    ),
    Caption(
        "graphs_syn_netflix",
        "Learned graphs: Syn-Netflix",
        "The same for ratings: the graphs that come with the data, the true distances, and what AIR has "
        "learned.",
        f"{COMMON}. 70 % missing; {AUTHORS}. The paper ends at 10 000 iterations; ours has 40 000.",
        "The learned graphs tend to the given ones, and stay where lines are identical.",
        "**The same to 10 000:** by then 96 % of the weight over users and 98 % of that over items lies "
        "on lines that are identical (39 % and 51 % at 5000). **Not the same after that:** the weight "
        "within identical lines goes down as well, to a mean degree of 0.23 at 40 000, and becomes "
        "patchy.",
    ),
    Caption(
        "frozen",
        "Adaptive against frozen graphs",
        "NMAE while Baboon is completed by AIR, and by the same model from the same start with graphs "
        "that do not change: those that AIR had learned by t = 4000, 7000 and 9000.",
        f"{COMMON}. {AUTHORS}, frozen graphs too; 10 000 iterations; the start, where X is 0, is cut off.",
        "Frozen graphs are faster at the beginning; adaptive ones are best in the end on all three kinds "
        "of gaps.",
        "**Partly.** Frozen graphs are faster at the beginning, as printed. But at 10 000 iterations "
        "adaptive graphs are **not best on any of the three**: 0.146, 0.083, 0.131 against 0.115, 0.078, "
        "0.113 of the best frozen ones, because AIR over-fits by then. AIR at its own best moment (0.114 "
        "at 7600, 0.077 at 8700, 0.110 at 8100) is better than every frozen one is at the end, by little; "
        "on patches, frozen ones are better still (0.092 at 2600) for a short time. One seed.",
    ),
    Caption(
        "trajectories",
        "Observed against missing entries",
        "Mean squared error on missing against observed entries while Baboon is completed; from the dot "
        "to the diamonds at 10 000 iterations.",
        f"{COMMON}. {AUTHORS}; total variation has λ = 0.01/(m·n).",
        "All fall alike at first; then the missing error of DMF and of DMF with total variation rises, "
        "and that of AIR goes on falling.",
        "**The same for DMF**, whose missing error rises 106, 8 and 37 times from its least. **AIR turns, "
        "too**, later and by less: from 0.0105 to 0.0185, 0.0063 to 0.0070 and 0.0113 to 0.0162. Total "
        "variation rises and comes down again; with 30 % missing it ends lower than AIR (0.0061), with "
        "texture level with it. Neither weight is innocent of the truth: that of the total variation was "
        "once chosen for Barbara, and the authors' λ was taken for AIR after one run with airnp's own, "
        "half as large, had been seen on patches. That run, not in the figure, turned sooner: NMAE 0.109 "
        "at 6800, 0.177 at 10 000, where this one has 0.114 at 7600 and 0.146.",
    ),
    Caption(
        "training",
        "Error during training",
        "NMAE on missing entries during DMF and AIR, and where it is least.",
        f"{COMMON}. {AUTHORS}. 10 000 iterations, 40 000 for Syn-Netflix.",
        "AIR does not over-fit, and is better than DMF on all six.",
        "**The same on five:** AIR ends far below where DMF ends, and below DMF's best moment too, but "
        "for Cameraman's patches: there DMF's least is 0.0441, AIR ends at 0.0448 (its least is 0.0415). "
        "AIR hardly over-fits by 10 000 here, which it does on Baboon. **Not on Syn-Netflix**, where DMF "
        "ends at 0.00007 and AIR at 0.0006 (least 0.0003); both have the spikes of Adam at a fixed rate.",
    ),
    Caption(
        "pictures",
        "Barbara, recovered",
        "What was given (missing pixels red), and the picture filled in by each method, with its NMAE; "
        "observed pixels are shown as given.",
        f"{COMMON}. DMF and DMF+TV: 10 000 iterations, last iterate. AIR: `airnp.fit` with its "
        "defaults; it stops by itself, after 11 190, 8670 and 10 090 iterations. The others: defaults of "
        "`airnp.baselines`.",
        "AIR is best on all three, to the eye and by NMAE (0.0471, 0.1195, 0.0692).",
        "**Not the same.** AIR reaches its printed numbers on two rows (0.0461, 0.1163; 0.0706 on texture), "
        "but it is **not best on any**, because most of our baselines are better than the printed ones: "
        "PNMC has 0.0331 and 0.0860 on 30 % and patches, biharmonic inpainting, which the paper does not "
        "have, 0.0600 on texture. KNN is better than AIR on patches and texture, biharmonic inpainting on "
        "30 % and texture, DMF+TV on 30 %. DMF fails on holes as printed, and with 30 % missing its last "
        "iterate is worse than printed (0.1285 against 0.0613; its best moment has 0.0611). What AIR gives "
        "is also smooth where pixels were observed, which this picture does not show. One mask and one "
        "seed.",
    ),
    Caption(
        "depth_width",
        "Depth and width",
        "NMAE of AIR and DMF on Barbara for several numbers of factors L and inner dimensions r.",
        f"{COMMON}. 50 % missing; {AUTHORS}; 10 000 iterations; L = 3 and r = 240 where not varied.",
        "AIR gets better with larger L and larger r.",
        "**The same for AIR**, with most of the gain at the beginning: 0.0572, 0.0540, 0.0536, 0.0535 for "
        "L = 2 to 5, and 0.0770, 0.0589, 0.0558, 0.0548, 0.0540 for r = 10 to 240; all but L = 2 are "
        "still falling at 10 000. **The opposite for DMF**, which the paper does not show here: its last "
        "iterate is best with two factors (0.0687 against 0.14) or ten dimensions (0.0767); at its best "
        "moment it is about 0.07 whatever the width, from r = 30 on. One mask and one seed.",
    ),
)
CAPTIONS = {caption.name: caption for caption in _ALL}
