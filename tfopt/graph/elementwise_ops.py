"""Operations that compute each element from the elements at the same place of their inputs."""

UNARY = {"Abs", "Cast", "Ceil", "Elu", "Erf", "Erfc", "Exp", "Floor", "LeakyRelu", "Log", "Log1p", "LogicalNot", "Neg"}
UNARY |= {"Relu", "Relu6", "Round", "Rsqrt", "Selu", "Sigmoid", "Sign", "Softplus", "Softsign", "Sqrt", "Square"}
UNARY |= {"Tanh"}
BINARY = {"Add", "AddV2", "Sub", "Mul", "RealDiv", "Maximum", "Minimum", "Pow", "SquaredDifference"}
BINARY |= {"LogicalAnd", "LogicalOr", "Greater", "GreaterEqual", "Less", "LessEqual"}
