# frozen_string_literal: true

require "test_helper"
require "yaml"
require "heddle"
require "support/matrix"

# Dockerfile and compose.yaml name versions that the tests know, and addresses that Heddle takes. `script/newcomer
# image` runs the steps, and CI builds the image.
class ImageTest < Minitest::Test
  ROOT = File.expand_path("../..", __dir__)
  SERVICES = YAML.load_file("#{ROOT}/compose.yaml").fetch("services")

  def test_the_ruby
    assert_match(/^FROM ruby:#{Regexp.escape(TestMatrix::NEWEST)}-/o, File.read("#{ROOT}/Dockerfile"))
  end

  # What git ignores, such as bundles and gems, was made on this machine, for its own Ruby.
  def test_the_image_gets_no_file_that_git_ignores
    refused, ignored = %w[.dockerignore .gitignore].map do |file|
      File.readlines(File.join(ROOT, file), chomp: true).grep_v(/\A(?:#|\z)/)
    end
    # Docker's patterns begin at the top.
    ignored.map! { |path| path.start_with?("/") ? path.delete_prefix("/").chomp("/") : "**/#{path}" }
    assert_empty ignored.reject { |path| refused.any? { |pattern| pattern == path || File.fnmatch(pattern, path) } }
  end

  def test_the_servers_are_tested_ones
    tested = File.read("#{ROOT}/guides/upgrading_and_versions.md")[/^## What is tested$(.*?)^## /m, 1]
    {"mariadb" => "MariaDB", "postgresql" => "PostgreSQL"}.each do |service, name|
      version = SERVICES.fetch(service).fetch("image")[/:(.+)/, 1]
      assert_match(/^\| #{name}\b.*\b#{Regexp.escape(version)}\b/, tested)
    end
  end

  def test_the_addresses
    console = SERVICES.fetch("console")
    addresses = console.fetch("environment").values
    hosts = addresses.map { |address| address[%r{([a-z]+)(?::\d+)?(?:/\w+)?\z}, 1] }
    assert_equal console.fetch("depends_on").keys, hosts
    assert_empty hosts - SERVICES.keys
    assert_equal 2, addresses.grep(%r{\A(?:mariadb|postgresql)://}).each { |url| Heddle::DB.settings(url, {}) }.size
  end
end
