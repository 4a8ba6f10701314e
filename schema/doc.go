// Package schema holds the types of the topology file, their defaults, and small lookups.
// What happens to a topology has a package each, in this order:
//
//	document   the text of the file, and where each value stands in it
//	load       from text to these types
//	validate   what it says is checked, with overlap, capacity and resolve
//	lockfile   what was allocated before
//	overlay    what is published stays where it is
//	allocate   what is missing is allocated
//	ownership  who may change what differs from another version
//
// Everything here is a function of its input: no clock, randomness,
// environment, network or logging.
//
// The struct tags of the types are rules that load, Default, validate, the JSON
// Schema and the reference all read:
//
//	default:"text"   what Default fills in when the field is empty
//	enum:"a|b"       the only values
//	min:"n" max:"n"  the range of a number or a duration; an optional field may also be empty
//	required:"true"  the field must not be empty
//	name:"f" or name:"f/g"  on the blank field _: which fields name an item in a path, as in clusters[g1]
//	owner:"cluster" or owner:"namespace"  whose owners may change the field, besides those of everything
package schema

//go:generate go run ./internal/gen
