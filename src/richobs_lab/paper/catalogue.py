"""Every numbered item of [KAL16]: its place, its formula, its code, its tests, and the statement that runs it.

Theorems, lemmas, corollaries, propositions, assumptions, conditions, examples, algorithms and equations are counted each by
themselves, in the order of the paper's LaTeX source. The lines are lines of that source. Displayed inequalities of
consequence that have no number are named by what they say. The style file that declares the paper's counters is not part of
that source, so a copy of the paper may count otherwise; labels tell which item is meant.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Entry:
    """One item of the paper."""

    number: str  # as the paper counts, for instance "Theorem 1"
    title: str
    line: int  # of the paper's source, where it begins
    tex: str  # its formula, or "" where it has none
    code: tuple[str, ...]  # dotted names of richobs
    tests: tuple[str, ...]  # node ids below tests/
    statement: str = ""  # the statement that runs it, by name
    checks: tuple[str, ...] = ()  # how the checks about it begin; none means that all of the statement are


PARTS: tuple[tuple[int, str], ...] = (  # first line of the paper's source -> part of the paper
    (0, "Abstract, introduction and model (Sections 1 and 2)"),
    (556, "The result (Section 3)"),
    (870, "Lower bounds (Appendix A)"),
    (1080, "Algorithms and guarantees (Appendices B and C)"),
    (1300, "TD-Elim (Appendix E)"),
    (1626, "Consensus and DFS-Learn (Appendices F and G)"),
    (1757, "Explore-on-Demand (Appendix H)"),
)

_PROCESS = "richobs.core.process.TabularProcess"
_LSVEE = "richobs_lab.lsvee"
_CONSTANTS = f"{_LSVEE}.constants.PaperConstants"
_LEMMAS = "statements/test_td_elim_lemmas.py"
_PHI = r"\phi = \frac{\epsilon}{320 H^2 \sqrt{K}}"

CATALOGUE: tuple[Entry, ...] = (
    Entry(
        "Abstract",
        "episodes are independent of the size of the observation space; again at lines 233 and 574",
        169,
        "",
        ("richobs_lab.paper.statements.remarks",),
        ("statements/test_remarks.py::test_every_check_holds",),
        "remarks",
        ("|X| does not",),
    ),
    Entry(
        "Section 1",
        "sparse sampling needs K^H samples; again at line 506",
        207,
        r"\Omega(K^H)",
        ("richobs_lab.rivals.sparse_sampling",),
        ("statements/test_remarks.py::test_every_check_holds",),
        "remarks",
        ("sparse sampling",),
    ),
    Entry(
        "Section 1",
        "the bound with log|Pi| and without delta; again in the abstract",
        233,
        r"O\left( \frac{M K^2 H^6}{\epsilon^3} \log |\Pi| \right)",
        ("richobs_lab.paper.statements.remarks",),
        ("statements/test_remarks.py::test_every_check_holds",),
        "remarks",
        ("log|Pi|",),
    ),
    Entry(
        "Section 2.1",
        "the model (Gamma_1, Gamma, D), rewards and totals in [0, 1]",
        263,
        r"\sum_{h=1}^{H} r_h(a_h) \in [0, 1]",
        (_PROCESS, f"{_PROCESS}.reward_fault", "richobs.worlds.simulator.TabularWorld"),
        (
            "test_process.py::test_values_agree_with_simulation",
            "test_process.py::test_what_is_refused_and_where_it_says_the_fault_is",
            "test_worlds.py::test_a_tabular_world_draws_from_its_law",
        ),
    ),
    Entry(
        "Eq. (1)",
        "V* and V*(s)",
        306,
        r"V^\star(s) = \mathbb{E}_{x \sim D_s} \max_a \mathbb{E}_r \left[ r(a) + \mathbb{E}_{s'} V^\star(s') \right]",
        (f"{_PROCESS}.optimum",),
        ("test_process.py::test_optimal_values_worked_out_by_hand",),
        "remarks",
        ("equation (1)",),
    ),
    Entry(
        "Eq. (2)",
        "Q*_s(x, a)",
        316,
        r"Q^\star_s(x, a) = \mathbb{E}_r \left[ r(a) + \mathbb{E}_{s'} V^\star(s') \right]",
        (f"{_PROCESS}.optimum",),
        ("test_process.py::test_no_reactive_policy_beats_the_optimum_and_one_attains_it",),
    ),
    Entry(
        "Section 2.1",
        "V(pi) of a reactive policy",
        351,
        r"V(s, \pi) = \mathbb{E}_{(x, r) \sim D_s} \left[ r(\pi(x)) + \mathbb{E}_{s'} V(s', \pi) \right]",
        (f"{_PROCESS}.value",),
        ("test_process.py::test_values_agree_with_enumeration",),
    ),
    Entry(
        "Proposition 1",
        "reactive policies alone do not suffice",
        360,
        r"\Pr\left[ V(\hat{\pi}) > \max_{\pi \in \Pi} V(\pi) - \epsilon \right] \le \frac{2}{3}"
        r" \quad \text{for all } T \le \frac{c K^H}{\epsilon^2}",
        ("richobs_lab.worlds.lower_bound.policies",),
        ("test_worlds.py::TestLowerBound::test_the_secret_path_is_better_by_epsilon_and_all_others_are_equal",),
        "lower-bounds",
        ("no algorithm at all", "Propositions 1 and 2", "every learner fails", "one policy earns"),
    ),
    Entry(
        "Section 2.1",
        "Q* as a function of the history, where transitions are deterministic",
        376,
        "",
        ("richobs_lab.paper.statements.remarks",),
        ("statements/test_remarks.py::test_every_check_holds",),
        "remarks",
        ("Q* is a function",),
    ),
    Entry(
        "Proposition 2",
        "realizability alone does not suffice",
        380,
        r"\Pr\left[ V(\hat{\pi}) > V^\star - \epsilon \right] \le \frac{2}{3}"
        r" \quad \text{for all } T \le \frac{c K^H}{\epsilon^2}",
        ("richobs_lab.worlds.lower_bound.predictors",),
        ("test_worlds.py::TestLowerBound::test_the_predictor_of_the_secret_path_is_q_star_on_histories",),
        "lower-bounds",
        ("no algorithm at all", "Propositions 1 and 2", "every learner fails", "one policy earns"),
    ),
    Entry(
        "Assumption 1",
        "reactive value functions",
        406,
        r"Q^\star_s(x, a) = Q^\star_{s'}(x, a)",
        (f"{_PROCESS}.reactivity_conflict", "richobs_lab.assumptions.check.check_assumptions"),
        ("test_assumptions.py::test_exactly_the_broken_assumption_is_reported",),
    ),
    Entry(
        "Example 1",
        "disjoint observations",
        417,
        "",
        ("richobs_lab.worlds.disjoint",),
        ("test_worlds.py::TestTheOthers::test_disjoint_states_own_their_observations",),
    ),
    Entry(
        "Assumption 2",
        "realizability",
        444,
        r"Q^\star = f^\star \in \mathcal{F}, \quad |\mathcal{F}| = N",
        ("richobs_lab.assumptions.check.check_assumptions",),
        ("test_assumptions.py::test_an_enumerated_class_needs_one_member_that_is_right_at_all_levels",),
    ),
    Entry(
        "Assumption 3",
        "deterministic transitions",
        459,
        r"\Gamma : \mathcal{S} \times \mathcal{A} \to \mathcal{S}",
        (f"{_PROCESS}.is_deterministic", "richobs_lab.assumptions.audit.audit"),
        ("test_assumptions.py::test_audit_notices_random_states",),
    ),
    Entry(
        "Section 2.3",
        "contextual bandits (H = 1) and small-state MDPs (X = S)",
        482,
        "",
        ("richobs.worlds.bandit", "richobs.worlds.mdp", "richobs_lab.worlds.deep_sea"),
        (
            "test_worlds.py::TestTheOthers::test_bandit_has_one_level_and_one_state",
            "test_worlds.py::TestTheOthers::test_mdp_shows_its_states",
        ),
    ),
    Entry(
        "Algorithm 1",
        "LSVEE; the same as Algorithms 4 and 8 of Appendix B",
        606,
        r"n_1 = \frac{32 \log(12 M H / \delta)}{\epsilon^2}, \quad n_2 = \frac{8 \log(6 M H / \delta)}{\epsilon}",
        (f"{_LSVEE}.algorithm", f"{_LSVEE}.demand", _CONSTANTS),
        (
            "test_lsvee.py::test_a_whole_run_worked_out_by_hand",
            "test_lsvee.py::TestConstants::test_against_numbers_worked_out_from_the_main_text",
        ),
    ),
    Entry(
        "Algorithm 2",
        "DFS-Learn; the same as Algorithm 5 of Appendix B",
        622,
        _PHI + r", \quad \epsilon_{\mathrm{test}} = 20 \left( H - |p| - \frac{5}{4} \right) \sqrt{K} \phi",
        (f"{_LSVEE}.dfs", f"{_CONSTANTS}.eps_test"),
        ("test_lsvee.py::test_a_whole_run_worked_out_by_hand",),
    ),
    Entry(
        "Algorithm 3",
        "Consensus; the same as Algorithm 6 of Appendix B",
        639,
        r"n_{\mathrm{test}} = \frac{2 \log(2N / \delta)}{\phi^2}",
        (f"{_LSVEE}.consensus", f"{_LSVEE}.constants.n_test"),
        ("test_lsvee.py::test_consensus_looks_at_survivors_only",),
    ),
    Entry(
        "Eq. (3)",
        "value predictions V^f(p, pi_f)",
        655,
        r"V^f(p, \pi_f) = \mathbb{E}_{x \sim D_p} f(x, \pi_f(x))",
        (f"{_PROCESS}.predicted_values",),
        ("test_process.py::test_predictions_of_a_function_worked_out_by_hand",),
    ),
    Entry(
        "Eq. (4)",
        "empirical risk R~(f)",
        671,
        r"\tilde{R}(f) = \frac{1}{n_{\mathrm{train}}} \sum_i"
        r" \left( f(x_i, a_i) - r_i - \hat{V}^f(p \circ a_i, \pi_f) \right)^2",
        (f"{_LSVEE}.elimination.td_risk", "richobs_lab.lsvee.spaces"),
        ("test_lsvee.py::test_td_risk_by_hand", "test_spaces.py::test_layered_and_listed_spaces_agree"),
    ),
    Entry(
        "Eq. (5)",
        "f* is consistent with itself one step later",
        679,
        r"f^\star(x, a) = \mathbb{E}_r\, r(a) + \mathbb{E}_{x' \sim D_{p \circ a}} f^\star(x', \pi_{f^\star}(x'))",
        (f"{_PROCESS}.optimum", f"{_PROCESS}.predicted_values"),
        ("test_paper_map.py::test_q_star_predicts_its_own_next_value",),
    ),
    Entry(
        "Section 3.1",
        "a surviving policy loses at most epsilon/8 and its chance of leaving L",
        762,
        r"V^\star - V(\pi_f) \le \frac{\epsilon}{8} + \Pr\left[ \pi_f \text{ visits some } s \notin L \right]",
        (f"{_LSVEE}.demand",),
        ("statements/test_on_demand.py::test_every_check_holds",),
        "on-demand",
        ("Section 3.1,",),
    ),
    Entry(
        "Section 3.1",
        "the running time may be O(N)",
        775,
        "",
        ("richobs_lab.paper.statements.remarks",),
        ("statements/test_remarks.py::test_every_check_holds",),
        "remarks",
        ("O(N) time",),
    ),
    Entry(
        "Theorem 1",
        "PAC bound",
        786,
        r"\tilde{O}\left( \frac{M H^6 K^2}{\epsilon^3} \log(N / \delta) \log(1 / \delta) \right)",
        ("richobs.learning.learn", f"{_LSVEE}.learner.Lsvee"),
        (
            "test_lsvee.py::test_the_guarantee_over_random_processes",
            "test_lsvee.py::test_the_guarantee_in_every_world",
            "statements/test_pac.py::test_every_check_holds",
        ),
        "pac",
    ),
    Entry(
        "Section 3.2",
        "LSVEE is polynomial; epsilon-greedy, by the footnote of Section 1 (line 192), exponentially less efficient",
        805,
        "",
        ("richobs_lab.rivals.epsilon_greedy", "richobs_lab.rivals.uniform_exploration"),
        ("statements/test_undirected_exploration.py::test_every_check_holds",),
        "undirected-exploration",
    ),
    Entry(
        "Section 3.2",
        "rates for contextual bandits and tabular MDPs; tightness is that of the staircase, as for Theorem 1",
        817,
        r"\tilde{O}\left( \frac{K^2}{\epsilon^3} \log(N / \delta) \log(1 / \delta) \right)",
        ("richobs.learning.plan",),
        (
            "test_certificate.py::TestPlan::test_rates_by_hand",
            "statements/test_special_cases.py::test_every_check_holds",
        ),
        "special-cases",
    ),
    Entry(
        "Section 3.2",
        "log N is believed to be unavoidable with rich observations",
        838,
        "",
        ("richobs_lab.paper.statements.remarks",),
        ("statements/test_remarks.py::test_every_check_holds",),
        "remarks",
        ("log N cannot",),
    ),
    Entry(
        "Section 3.2",
        "M may be refined: states that differ in no value count once",
        842,
        "",
        ("richobs_lab.paper.statements.remarks",),
        ("statements/test_remarks.py::test_every_check_holds",),
        "remarks",
        ("the refined notion",),
    ),
    Entry(
        "Theorem 2",
        "lower bound for best-arm identification",
        877,
        r"\Pr\left[ \hat{\imath} \ne i^\star \right] \ge \frac{1}{3} \quad \text{unless } T \ge \frac{K}{72 \epsilon^2}",
        ("richobs_lab.worlds.lower_bound.member",),
        ("statements/test_lower_bounds.py::test_every_check_holds",),
        "lower-bounds",
        ("no algorithm at all", "the wall, by", "every learner fails"),
    ),
    Entry(
        "Proof of Theorem 2",
        "the gain from playing an arm",
        925,
        r"\Pr_{i^\star}[\psi_T = i^\star] - \Pr_0[\psi_T = i^\star]"
        r" \le \frac{1}{2} \sqrt{-\mathbb{E}_0[N_{i^\star}] \log(1 - 4 \epsilon^2)}",
        ("richobs_lab.paper.statements.lower_bounds",),
        ("statements/test_lower_bounds.py::test_every_check_holds",),
        "lower-bounds",
        ("the proof's bound",),
    ),
    Entry(
        "Proof of Theorem 2",
        "the Taylor step",
        980,
        r"-\log(1 - x) \le 2x \quad \text{for } 0 \le x \le \frac{1}{2}",
        ("richobs_lab.paper.statements.lower_bounds",),
        ("test_paper_map.py::test_the_taylor_step",),
        "lower-bounds",
        ("the Taylor step",),
    ),
    Entry(
        "Appendix A",
        "the construction",
        989,
        r"f_p(\rho) = \frac{1}{2} + \epsilon \mathbf{1}[\rho \text{ is a prefix of } p]",
        ("richobs_lab.worlds.lower_bound.member", "richobs_lab.worlds.lower_bound.predictors"),
        ("test_worlds.py::TestLowerBound",),
        "lower-bounds",
        ("the construction", "one policy earns", "the reduction"),
    ),
    Entry(
        "Appendix A",
        "one constant for all algorithms, Omega(K^H / epsilon^2)",
        1027,
        r"\Omega\left( \frac{K^H}{\epsilon^2} \right)",
        ("richobs_lab.paper.statements.lower_bounds",),
        ("statements/test_lower_bounds.py::test_every_check_holds",),
        "lower-bounds",
        ("one constant",),
    ),
    Entry(
        "Algorithm 7",
        "TD-Elim (Appendix B)",
        1150,
        r"n_{\mathrm{train}} = \frac{24 \log(4N / \delta)}{\phi^2}",
        (f"{_LSVEE}.elimination", f"{_LSVEE}.constants.n_train"),
        ("test_lsvee.py::TestConstants::test_main_text_and_appendix_agree",),
    ),
    Entry(
        "Eq. (6)",
        "who survives TD-Elim",
        1156,
        r"\tilde{R}(f) \le \min_{f' \in \mathcal{F}} \tilde{R}(f') + 2 \phi^2"
        r" + \frac{22 \log(2N / \delta)}{n_{\mathrm{train}}}",
        (f"{_LSVEE}.constants.elimination_slack", f"{_LSVEE}.elimination"),
        ("test_lsvee.py::TestConstants::test_main_text_and_appendix_agree",),
        "td-elim",
        ("a function survives", "n_train can be"),
    ),
    Entry(
        "Theorem 3",
        "guarantee for TD-Elim",
        1193,
        "",
        (f"{_LSVEE}.elimination",),
        ("statements/test_td_elim.py::test_the_theorem",),
        "td-elim",
    ),
    Entry(
        "Eq. (7)",
        "bias bound of Theorem 3",
        1204,
        r"\left| V^f(p, \pi_f) - V^g(p, \pi_g) \right| \le 8 \phi \sqrt{K} + 2 \phi + \tau_1",
        (f"{_LSVEE}.elimination",),
        ("statements/test_td_elim.py::test_bounds_by_hand",),
        "td-elim",
        ("bias bound",),
    ),
    Entry(
        "Eq. (8)",
        "instantaneous risk bound of Theorem 3",
        1210,
        r"V^\star(p) - V^{f^\star}(p, \pi_f) \le 4 \phi \sqrt{2K} + 2 \phi + 2 \tau_1",
        (f"{_LSVEE}.elimination",),
        ("statements/test_td_elim.py::test_bounds_by_hand",),
        "td-elim",
        ("instantaneous risk bound",),
    ),
    Entry(
        "Eq. (9)",
        "estimation bound of Theorem 3",
        1215,
        r"\left| \hat{V}^f(p, \pi_f) - V^f(p, \pi_f) \right| \le \frac{\phi}{\sqrt{12}}",
        (f"{_LSVEE}.elimination",),
        ("statements/test_td_elim.py::test_bounds_by_hand",),
        "td-elim",
        ("estimation bound",),
    ),
    Entry(
        "Theorem 4",
        "guarantee for Consensus",
        1230,
        r"\epsilon_{\mathrm{test}} \ge 2 \phi + \tau_2 \; \Rightarrow \;"
        r" \left| V^f(p, \pi_f) - V^g(p, \pi_g) \right| \le 2 \phi + \epsilon_{\mathrm{test}}",
        (f"{_LSVEE}.consensus",),
        ("statements/test_consensus.py::test_the_theorem",),
        "consensus",
    ),
    Entry(
        "Theorem 5",
        "guarantee for DFS-Learn",
        1250,
        r"T \le M H, \quad O\left( \frac{T H^4 K^2}{\epsilon^2} \log(N M K H / \delta) \right)",
        (f"{_LSVEE}.dfs", _CONSTANTS),
        (
            "statements/test_dfs_learn.py::test_the_statement",
            "test_lsvee.py::TestConstants::test_the_displayed_bounds_hold",
        ),
        "dfs-learn",
    ),
    Entry(
        "Corollary 1",
        "estimating V*",
        1263,
        r"\left| \hat{V}^\star - V^\star \right| \le \frac{\epsilon}{8}, \quad"
        r" O\left( \frac{M H^5 K^2}{\epsilon^2} \log \frac{N M H K}{\delta} \right)",
        (f"{_LSVEE}.algorithm",),
        (
            "statements/test_dfs_learn.py::test_the_statement",
            "test_lsvee.py::test_the_guarantee_over_random_processes",
        ),
        "v-star",
        ("every survivor", "phi/sqrt(12)", "episodes are"),
    ),
    Entry(
        "Theorem 6",
        "guarantee for Explore-on-Demand",
        1291,
        r"\tilde{O}\left( \frac{M H^6 K^2}{\epsilon^3} \log(N / \delta) \log(1 / \delta) \right)",
        (f"{_LSVEE}.demand",),
        ("statements/test_on_demand.py::test_every_check_holds",),
        "on-demand",
        ("The theorem", "Every failed round", "Rounds", "Episodes on"),
    ),
    Entry(
        "Condition 1",
        "estimates of child values",
        1313,
        r"\left| \hat{V}^f(p \circ a, \pi_f) - V^f(p \circ a, \pi_f) \right| \le \phi",
        (f"{_LSVEE}.dfs",),
        ("statements/test_dfs_learn.py::test_the_statement",),
        "dfs-learn",
        ("the preconditions",),
    ),
    Entry(
        "Condition 2",
        "agreement on child values",
        1320,
        r"\left| V^f(p \circ a, \pi_f) - V^g(p \circ a, \pi_g) \right| \le \tau_1",
        (f"{_LSVEE}.dfs",),
        ("statements/test_dfs_learn.py::test_the_statement",),
        "dfs-learn",
        ("the preconditions",),
    ),
    Entry(
        "Lemma 1",
        "properties of TD squared loss",
        1360,
        r"\operatorname{Var}[Y] \le 32\, \mathbb{E}[Y] + 64 \phi^2",
        (f"{_LSVEE}.elimination.td_risk",),
        ("statements/test_td_loss.py::test_the_lemma",),
        "td-loss",
    ),
    Entry(
        "Lemma 2",
        "squared loss deviation bounds",
        1418,
        r"\mathbb{E}\, Y(f) \le 6 \phi^2 + \frac{120 \log(2N / \delta)}{n_{\mathrm{train}}}",
        (f"{_LSVEE}.elimination", f"{_LSVEE}.constants.elimination_slack"),
        (f"{_LEMMAS}::test_the_lemma",),
        "squared-loss-deviation",
    ),
    Entry(
        "Lemma 3",
        "estimation error",
        1474,
        r"\left| \hat{V}^f(p, \pi_f) - V^f(p, \pi_f) \right| \le \sqrt{2 \log(2N / \delta) / n_{\mathrm{train}}}",
        (f"{_LSVEE}.constants.n_train",),
        (f"{_LEMMAS}::test_estimation_needs_the_constant",),
        "estimation-error",
    ),
    Entry(
        "Lemma 4",
        "bias accumulation",
        1492,
        r"V^f(p, \pi_f) - V^g(p, \pi_g)"
        r" \le 2 \sqrt{K} \sqrt{7 \phi^2 + 120 \log(2N / \delta) / n_{\mathrm{train}}} + 2 \phi + \tau_1",
        (f"{_LSVEE}.elimination",),
        (f"{_LEMMAS}::test_bias_needs_both_conditions",),
        "bias-accumulation",
    ),
    Entry(
        "Eq. (10)",
        "disagreement before the conditions are used; the step gives log(2N/delta), and log(N/delta) holds too; tightness "
        "is that of Lemma 4",
        1542,
        r"V^f(p, \pi_f) - V^g(p, \pi_g)"
        r" \le 2 \sqrt{K} \sqrt{7 \phi^2 + 120 \log(N / \delta) / n_{\mathrm{train}}}"
        r" + \mathbb{E}_x \left[ \hat{V}^f(p \circ \pi_f(x), \pi_f) - \hat{V}^g(p \circ \pi_f(x), \pi_g) \right]",
        (f"{_LSVEE}.elimination",),
        ("test_paper_map.py::test_disagreement_needs_the_factor_two_in_the_logarithm",),
        "bias-accumulation",
    ),
    Entry(
        "Lemma 5",
        "instantaneous risk bound",
        1566,
        r"V^{f^\star}(p, \pi_{f^\star}) - V^{f^\star}(p, \pi_f)"
        r" \le \sqrt{2K} \sqrt{7 \phi^2 + 120 \log(2N / \delta) / n_{\mathrm{train}}} + 2 (\phi + \tau_1)",
        (f"{_LSVEE}.elimination",),
        (f"{_LEMMAS}::test_risk_needs_the_condition",),
        "instantaneous-risk",
    ),
    Entry(
        "Proof of Theorem 4",
        "estimation error of Consensus",
        1640,
        r"\left| \hat{V}^f(p, \pi_f) - V^f(p, \pi_f) \right| \le \sqrt{2 \log(2N / \delta) / n_{\mathrm{test}}}",
        (f"{_LSVEE}.constants.n_test",),
        ("statements/test_consensus.py::test_the_theorem",),
        "consensus",
        ("(i)", "n_test can be"),
    ),
    Entry(
        "Proof of Theorem 5",
        "inductive claim on accessed paths",
        1681,
        r"\left| V^f(p, \pi_f) - V^g(p, \pi_g) \right| \le 20 \eta \sqrt{K} \phi",
        (f"{_LSVEE}.dfs",),
        ("statements/test_dfs_learn.py::test_the_proof_adds_up_by_hand",),
        "dfs-learn",
        ("inductive claim",),
    ),
    Entry(
        "Eq. (11)",
        "agreement after TD-Elim; tightness is that of the inductive claim",
        1698,
        r"\left| V^f(p, \pi_f) - V^g(p, \pi_g) \right| \le 20 \left( \eta - \frac{1}{2} \right) \phi \sqrt{K}",
        (f"{_LSVEE}.dfs",),
        ("statements/test_dfs_learn.py::test_the_proof_adds_up_by_hand",),
        "dfs-learn",
        ("inductive claim",),
    ),
    Entry(
        "Proof of Theorem 5",
        "episodes with numbers",
        1751,
        r"T (n_{\mathrm{train}} + K n_{\mathrm{test}}) \le 3 \cdot 10^6 \frac{T H^4 K}{\epsilon^2}"
        r" \log \frac{8 N M H}{\delta} + 3 \cdot 10^5 \frac{T H^4 K^2}{\epsilon^2} \log \frac{4 N M K H}{\delta}",
        (f"{_CONSTANTS}.max_search_episodes",),
        ("test_lsvee.py::TestConstants::test_the_displayed_bounds_hold",),
        "dfs-learn",
        ("episodes are at most",),
    ),
    Entry(
        "Lemma 6",
        "risk bound upon termination",
        1771,
        r"V^\star - V(\pi_f) \le \frac{3}{4} \epsilon \le \epsilon",
        (f"{_LSVEE}.demand",),
        ("statements/test_on_demand.py::test_every_check_holds",),
        "on-demand",
        ("Risk bound upon termination",),
    ),
    Entry(
        "Lemma 7",
        "termination guarantee",
        1784,
        r"V^\star - V(\pi_f) \le \frac{\epsilon}{4} \; \Rightarrow \;"
        r" \left| \hat{V}(\pi_f) - \hat{V}^\star \right| \le \frac{\epsilon}{2}",
        (f"{_LSVEE}.demand",),
        ("statements/test_on_demand.py::test_every_check_holds",),
        "on-demand",
        ("Termination guarantee",),
    ),
    Entry(
        "Eq. (12)",
        "learned states L",
        1800,
        r"L = \bigcup_h \left\{ s \in \mathcal{S}_h : \max_f V^\star(s) - V^{f^\star}(s, \pi_f)"
        r" \le 4 \phi \sqrt{2K} + 2 \phi + 40 (H - h) \sqrt{K} \phi \right\}",
        ("richobs_lab.paper.rigs.watched",),
        ("statements/test_on_demand.py::test_every_check_holds",),
        "on-demand",
        ("Policy risk", "Every failed round"),
    ),
    Entry(
        "Lemma 8",
        "policy risk",
        1819,
        r"V^\star - V(\pi_f) \le q^{\pi_f}[\mathrm{root} \to \bar{L}] + 40 \sqrt{K} \phi H^2",
        (f"{_LSVEE}.demand",),
        ("statements/test_on_demand.py::test_every_check_holds",),
        "on-demand",
        ("Policy risk",),
    ),
    Entry(
        "Lemma 9",
        "each non-terminal iteration makes progress",
        1870,
        r"\Pr\left[ \text{all } n_2 \text{ trajectories miss } \bar{L} \right] \le \exp(-\epsilon n_2 / 8)",
        (f"{_LSVEE}.demand",),
        ("statements/test_on_demand.py::test_every_check_holds",),
        "on-demand",
        ("Progress",),
    ),
    Entry(
        "Eq. (13)",
        "union bound over events in turn; the proof's A'_i needs complements of the A_j",
        1923,
        r"\Pr\left[ \bigcup_{i=0}^{t} A_i \right]"
        r" \le \Pr[A_0] + \sum_{i=1}^{t} \Pr\left[ A_i \mid \bar{A}_0, \ldots, \bar{A}_{i-1} \right]",
        ("richobs.stats.shares",),
        ("test_paper_map.py::test_the_union_bound_over_events_in_turn",),
    ),
    Entry(
        "Proof of Theorem 6",
        "rollouts for an estimate up to epsilon/8",
        1949,
        r"\left| \hat{V}(\pi_f) - V(\pi_f) \right| \le \sqrt{\log(6 M H / \delta) / (2 n_1)} \le \frac{\epsilon}{8}",
        (_CONSTANTS,),
        ("test_lsvee.py::TestConstants::test_main_text_and_appendix_agree",),
        "on-demand",
        ("Both, as probabilities", "The test is", "The margin"),
    ),
    Entry(
        "Proof of Theorem 6",
        "the crude bound M^2 H^7 K^2 / epsilon^3",
        1975,
        r"\tilde{O}\left( \frac{M^2 H^7 K^2}{\epsilon^3} \log(N / \delta) \log(1 / \delta) \right)",
        (f"{_CONSTANTS}.max_demand_episodes",),
        ("test_paper_map.py::test_the_crude_bound_is_above_the_careful_one",),
    ),
    Entry(
        "Proof of Theorem 6",
        "calls of TD-Elim",
        1984,
        r"M H^2 n_2 + M H = O\left( \frac{M H^2}{\epsilon} \log(M H / \delta) \right)",
        (f"{_CONSTANTS}.max_demand_episodes",),
        ("statements/test_on_demand.py::test_every_check_holds",),
        "on-demand",
        ("The theorem: episodes", "Episodes on"),
    ),
)


SOURCE: tuple[
    tuple[str, str, int], ...
] = (  # kind, LaTeX label and line of all that is numbered, in the source's order
    ("Eq.", "eq:vstar", 306),
    ("Eq.", "eqn:qstar", 316),
    ("Proposition", "prop:agnostic_lb", 360),
    ("Proposition", "prop:realizable_lb", 380),
    ("Assumption", "as:qs", 406),
    ("Example", "ex:disjoint", 417),
    ("Assumption", "as:realize", 444),
    ("Assumption", "as:det", 459),
    ("Algorithm", "alg:dfs_det_big_obs", 606),
    ("Algorithm", "alg:dfs_learn", 622),
    ("Algorithm", "alg:state_learned", 639),
    ("Eq.", "eqn:vfdef", 655),
    ("Eq.", "eq:td_sq_loss", 671),
    ("Eq.", "eq:f_consistency", 679),
    ("Theorem", "thm:det_dfs_big_obs", 786),
    ("Theorem", "thm:bandit_lb", 877),
    ("Algorithm", "alg:dfs_det_big_obs2", 1107),
    ("Algorithm", "alg:dfs_learn2", 1118),
    ("Algorithm", "alg:state_learned2", 1133),
    ("Algorithm", "alg:td_regressor_elimination", 1150),
    ("Eq.", "eqn:elim", 1156),
    ("Algorithm", "alg:on_demand", 1170),
    ("Theorem", "thm:td_regelim", 1193),
    ("Eq.", "eqn:bias-bound", 1204),
    ("Eq.", "", 1210),
    ("Eq.", "", 1215),
    ("Theorem", "thm:state_learned", 1230),
    ("Theorem", "thm:dfs_learn", 1250),
    ("Corollary", "cor:dfs_learn", 1263),
    ("Theorem", "thm:on_demand", 1291),
    ("Condition", "cond:estimation", 1313),
    ("Condition", "cond:bias", 1320),
    ("Lemma", "lem:y_mean_var", 1360),
    ("Lemma", "lem:sq_loss_dev", 1418),
    ("Lemma", "lem:est_bd", 1474),
    ("Lemma", "lem:bias_bd", 1492),
    ("Eq.", "eqn:disagree", 1542),
    ("Lemma", "lem:regret_bd", 1566),
    ("Eq.", "eqn:bias-induct", 1698),
    ("Lemma", "lem:risk_upon_termination", 1771),
    ("Lemma", "lem:termination_bd", 1784),
    ("Eq.", "eq:l_def", 1800),
    ("Lemma", "lem:regret_with_unlearned", 1819),
    ("Lemma", "lem:on_demand_progress", 1870),
    ("Eq.", "eq:union_bd", 1923),
)


def numbered(source: Sequence[tuple[str, str, int]] = SOURCE) -> list[tuple[str, str, int]]:
    """Returns number, label and line of items, each kind counted by itself: "Theorem 1", "Eq. (1)"."""
    counts: Counter[str] = Counter()
    found = []
    for kind, label, line in source:
        counts[kind] += 1
        found.append((f"Eq. ({counts[kind]})" if kind == "Eq." else f"{kind} {counts[kind]}", label, line))
    return found


LABELS = {number: label for number, label, _ in numbered()}  # number -> LaTeX label, "" where it has none


def entries_of(statement: str) -> tuple[Entry, ...]:
    """Returns what a statement runs, in the paper's order."""
    return tuple(entry for entry in CATALOGUE if entry.statement == statement)
