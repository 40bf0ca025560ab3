"""Methods to compare with, one per file, each as its paper has it; `docs/baselines.md` says what each one promises."""

from richobs.baselines.arms import Arms, Choice, PathArms
from richobs.baselines.delayed_q import delayed_q, delayed_q_visits
from richobs.baselines.epsilon_greedy import EpsilonGreedy
from richobs.baselines.lanes import Lanes, Learner, TablePolicy, greedy_values, train
from richobs.baselines.median_elimination import median_elimination
from richobs.baselines.observed import Learned, ObservedStates, Tally
from richobs.baselines.regressor_elimination import Elimination, regressor_elimination
from richobs.baselines.rmax import enough_visits, printed_visits, rmax
from richobs.baselines.successive_elimination import successive_elimination
from richobs.baselines.ucb_q import UcbQ
from richobs.baselines.uniform_allocation import uniform_allocation
from richobs.baselines.uniform_exploration import uniform_exploration

__all__ = [
    "Arms",
    "Choice",
    "Elimination",
    "EpsilonGreedy",
    "Lanes",
    "Learned",
    "Learner",
    "ObservedStates",
    "PathArms",
    "TablePolicy",
    "Tally",
    "UcbQ",
    "delayed_q",
    "delayed_q_visits",
    "enough_visits",
    "greedy_values",
    "median_elimination",
    "printed_visits",
    "regressor_elimination",
    "rmax",
    "successive_elimination",
    "train",
    "uniform_allocation",
    "uniform_exploration",
]
