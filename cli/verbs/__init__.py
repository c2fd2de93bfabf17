"""The commands of `termweave`: one short module for each verb, or for several related verbs."""
