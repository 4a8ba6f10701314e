// Package reach tests with packets through a real kernel that a gateway's rules allow exactly
// the packets that schema/fabric/reach allows.
package reach
