package project

import "hawser.dev/hawser/nodeagent/desired"

// Routes gives the routes of State alone, which are all that a move to another
// link changes at once, in a fraction of the time.
func Routes(in Input) []desired.Route {
	v := newView(in)
	if v == nil {
		return nil
	}
	v.addNodeLink()
	v.addTunnels()
	v.addPassing()
	v.addRoutes()
	return unique(v.state.Routes)
}
