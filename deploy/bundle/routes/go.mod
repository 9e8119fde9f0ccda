module k8sdds/bundle/routes

go 1.26.0
