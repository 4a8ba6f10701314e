// Package reach holds the rules of a gateway to what schema/fabric/reach says that a
// packet may reach, with packets through a real kernel.
package reach
