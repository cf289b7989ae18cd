"""The order in which laws are tried, as data: it is read where a pipeline is built, so it imports nothing."""

# Each line says why it stands where it does.
ORDER: tuple[tuple[str, str], ...] = (
    ("strip_unused", "first: what nobody reads costs every later law time, and its edges make consumers"),
    ("freeze_learning_phase", "before what a condition leads to: it makes one of the branches dead"),
    ("drop_control_edges", "before the drops, which leave a node alone that somebody waits for"),
    ("drop_assertions", "the same: what waits for a check is not dropped"),
    ("drop_numeric_checks", "before what looks at neighbours, which it stands between"),
    ("drop_training_nodes", "before everything that looks at neighbours: afterwards neighbours are neighbours"),
    ("fold_constants", "before the folds: they look for one constant where a graph computes it from several"),
    ("push_constants_through_enter", "as soon as they are constants, conditions of switches in loops among them"),
    ("push_constants_through_switch", "the same; what is then computed from them is folded in the next round"),
    ("fold_switches", "as soon as conditions are constants: every later law then sees what is on the live side"),
    ("fold_branches", "the same for the conditions of version 2"),
    ("drop_dropout", "as soon as its rate is a constant; what is left of a branch then meets its neighbours"),
    ("push_constants_into_bodies", "as soon as they are constants: the laws that follow find them in the bodies"),
    ("push_list_constants", "any time after constants are folded: it makes one of several"),
    ("cancel_transposes", "early: what stood on both sides of a pair are neighbours afterwards"),
    ("cancel_casts", "the same"),
    ("cancel_squeezes", "the same"),
    ("drop_whole_slices", "the same"),
    ("fuse_reshapes", "the same"),
    ("fuse_pad_into_conv", "any time before the layout changes; a convolution keeps its kernel"),
    ("drop_idle_layout", "after the zeros went into a convolution, and lists became lists of one"),
    ("fuse_map_loops", "before the folds, the same: they look for neighbours, which in a loop are apart"),
    ("fuse_products_of_slices", "before the folds, which then have one kernel to fold into"),
    ("push_after_view", "before the folds, which then find next to a kernel what lay behind a view"),
    ("push_before_view", "the same; what has a kernel on both sides goes to the earlier one"),
    ("fold_scale_before", "before the shift: a batch norm multiplies first, and the factor then meets the operation"),
    ("fold_shift_before", "before the folds from behind, which take up the bias it makes"),
    ("fold_batch_norm", "the larger law before its two halves"),
    ("fold_batch_norm_before", "after it: a batch norm with kernels on both sides goes to the earlier one"),
    ("fold_scale", "before the shift: a batch norm multiplies first, and the bias in between must follow"),
    ("fold_shift", "after the scale, whose last operation it meets"),
    ("fold_exact_quotients", "after the folds, which take any quotient; before what gathers products"),
    ("push_constants_together", "after the folds, which have a better place for a constant next to a kernel"),
    ("drop_neutral_elements", "after all that makes constants, some of which are 0 or 1"),
    ("fold_absorbing_elements", "the same"),
    ("drop_left_neutral", "after the folds: a sign next to a kernel goes into it"),
    ("share_equal_nodes", "after every fold: what is shared has several consumers, and cannot be folded into"),
)

# True only of graphs that a graph itself does not show to be such; tried where they are asked for by name.
ASKED_FOR: tuple[tuple[str, str], ...] = (("fold_zero_products", "where no factor is ever infinite or NaN"),)

# What makes a graph plain enough for laws that look at neighbours and constants.
NORMALIZING = ("strip_unused", "drop_control_edges", "drop_training_nodes", "fold_constants", "strip_unused")
