// Package schema holds the types of the topology file, their defaults, and small lookups.
// Each step of processing has its own package, in this order:
//
//	document   parses the file and records the position of each value
//	load       decodes the document into these types
//	validate   checks the topology, with overlap, capacity and linkconfig
//	lockfile   reads and writes the allocated addresses
//	lockmerge  merges the published addresses into the lock
//	allocate   allocates missing addresses
//	ownership  checks who may make the changes between two topologies
//
// All packages are pure: they use no clock, randomness, environment, network or
// logging.
//
// The struct tags of the types are rules for load, Default, validate, the JSON
// Schema and the reference:
//
//	default:"text"   the value that Default sets if the field is empty
//	enum:"a|b"       the only values
//	min:"n" max:"n"  the range of a number or a duration; an optional field may also be empty
//	required:"true"  the field must not be empty
//	name:"f" or name:"f/g"  on the blank field _: the fields that name an item in a path, as in clusters[g1]
//	owner:"cluster" or owner:"namespace"  whose owners may change the field, next to trust.owners
package schema

//go:generate go run ./internal/gen
