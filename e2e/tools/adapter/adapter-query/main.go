// Command adapter-query prints the PromQL that prometheus-adapter makes of an external metric: with its own reading of
// its configuration (standard input), and its own naming.
//
//	adapter-query METRIC NAMESPACE SELECTOR SERIES
//
// SERIES is the name of a series that Prometheus has for the metric's rule.
package main

import (
	"fmt"
	"io"
	"log"
	"os"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	prom "sigs.k8s.io/prometheus-adapter/pkg/client"
	"sigs.k8s.io/prometheus-adapter/pkg/config"
	"sigs.k8s.io/prometheus-adapter/pkg/naming"
)

func main() {
	if len(os.Args) != 5 {
		log.Fatal("usage: adapter-query METRIC NAMESPACE SELECTOR SERIES < config.yaml")
	}
	query, err := queryOf(os.Args[1], os.Args[2], os.Args[3], os.Args[4])
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(query)
}

func queryOf(metric, namespace, selector, series string) (prom.Selector, error) {
	text, err := io.ReadAll(os.Stdin)
	if err != nil {
		return "", err
	}
	found, err := config.FromYAML(text)
	if err != nil {
		return "", err
	}
	namers, err := naming.NamersFromConfig(found.ExternalRules, namespaces())
	if err != nil {
		return "", err
	}
	wanted, err := labels.Parse(selector)
	if err != nil {
		return "", err
	}
	for _, namer := range namers {
		for _, one := range namer.FilterSeries([]prom.Series{{Name: series}}) {
			if name, err := namer.MetricNameForSeries(one); err != nil {
				return "", err
			} else if name == metric {
				return namer.QueryForExternalSeries(one.Name, namespace, wanted)
			}
		}
	}
	return "", fmt.Errorf("no rule makes %s of %s", metric, series)
}

// namespaces is a mapper that knows nothing else.
func namespaces() meta.RESTMapper {
	core := schema.GroupVersion{Version: "v1"}
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{core})
	mapper.Add(core.WithKind("Namespace"), meta.RESTScopeRoot)
	return mapper
}
