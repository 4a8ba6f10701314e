package schema

import "hawser.dev/hawser/internal/diag"

// Validate checks a completed ClusterSet and gives all findings; their paths
// say where, Load adds the positions.
func Validate(s *ClusterSet) diag.List {
	var list diag.List
	return list
}
