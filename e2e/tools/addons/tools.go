//go:build tools

// Package tools names the commands built from this module as they are, so that go.mod pins them.
package tools

import (
	_ "helm.sh/helm/v3/cmd/helm"
	_ "sigs.k8s.io/kwok/cmd/kwok"
)
