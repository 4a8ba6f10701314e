// Package schema holds the topology file of a clusterset: its types, the strict
// loader that knows where every value stands, defaults and validation; and,
// beside it, the lock file that keeps what was allocated.
//
// Everything here is a function of its input: no clock, randomness,
// environment, network or logging.
//
// The struct tags of the types are rules that Load, Default, Validate, the JSON
// Schema and the reference all read:
//
//	default:"text"   what Default fills in when the field is empty
//	enum:"a|b"       the only values
//	min:"n" max:"n"  the range of a number or a duration; an optional field may also be empty
//	required:"true"  the field must not be empty
//	name:"f" or name:"f/g"  on the blank field _: which fields name an item in a path, as in clusters[g1]
//	owner:"cluster" or owner:"namespace"  whose owners may change the field, besides those of everything
//
// Called by reconciler, which loads and allocates; by render, which takes the result; by lab
// and cmd/hawser.
package schema

//go:generate go run ./internal/gen
