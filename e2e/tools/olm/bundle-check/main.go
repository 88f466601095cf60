// Command bundle-check prints what operator-framework's validators say of an OLM bundle: the default ones, those of
// OperatorHub.io and those of good practices. It fails where one has an error.
//
// Their own program, operator-verify, lacks OperatorHub.io's newer ones, and succeeds whatever it prints.
package main

import (
	"fmt"
	"os"

	"github.com/operator-framework/api/pkg/manifests"
	"github.com/operator-framework/api/pkg/validation"
)

// Without those of package manifests and OperatorGroups, which a bundle does not have, the deprecated ones, and the one
// that pulls the images with Docker.
var validators = validation.DefaultBundleValidators.WithValidators(
	validation.OperatorHubV2Validator,
	validation.StandardCategoriesValidator,
	validation.StandardCapabilitiesValidator,
	validation.ObjectValidator,
	validation.AlphaDeprecatedAPIsValidator,
	validation.GoodPracticesValidator,
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: bundle-check FOLDER")
		os.Exit(2)
	}
	bundle, err := manifests.GetBundleFromDir(os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	failed := false
	for _, result := range validators.Validate(bundle.ObjectsToValidate()...) {
		for _, finding := range append(result.Errors, result.Warnings...) {
			fmt.Println(finding.Error())
		}
		failed = failed || result.HasError()
	}
	if failed {
		os.Exit(1)
	}
}
