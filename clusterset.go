// Package hawser holds what the commands hand out as it is.
package hawser

import _ "embed"

// Schema is the JSON Schema of a topology file, by which editors complete it.
//
//go:embed clusterset.schema.json
var Schema []byte
