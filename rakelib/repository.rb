# frozen_string_literal: true

# The repository, as the gemspec names it.
module Repository
  CHANGELOG = "/CHANGELOG.md"
  private_constant :CHANGELOG

  # @param spec [Gem::Specification]
  # @return [String] where its files are read: links to them are paths below this
  def self.files(spec) = spec.metadata.fetch("changelog_uri").delete_suffix(CHANGELOG)
end
