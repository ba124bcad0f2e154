# frozen_string_literal: true

require "digest"
require "json"
require "net/http"
require "rubygems/package"

# Publishes gems, each with a signature of the workflow that it comes from. It may be run again after it has failed half
# way: what is published already stays as it is. It is signed again, because its signature is also a file of the
# release.
class ReleasePush
  # It runs with the workflow's identity: no newer version of it is taken unseen.
  SIGN = %w[gem exec sigstore-cli:0.2.3 sign].freeze
  private_constant :SIGN

  # @param paths [Array<String>] in the order in which they are to appear
  # @param registry [String] by default the one to which `gem push` is set
  def initialize(paths, registry: Gem.host)
    @paths = paths
    @registry = registry
  end

  # @yieldparam command [Array<String>] to run; an error of the block ends this
  # @return [Array<String>] what was done with each
  # @raise [RuntimeError] for a version that is published with other bytes
  def run(&command)
    @paths.map do |path|
      name = File.basename(path)
      sign, push = publish(path)
      case published(Gem::Package.new(path).spec)
      when nil
        [sign, push].each(&command)
        "#{name}: published"
      when Digest::SHA256.file(path).hexdigest
        yield sign
        "#{name}: was published before"
      else raise "#{name} is published with other bytes: release a new version"
      end
    end
  end

  # @return [Array<Array<String>>] what publishes all of them
  def commands = @paths.flat_map { |path| publish(path) }

  private

  def publish(path)
    signature = "#{path}.sigstore.json"
    [[*SIGN, path, "--bundle", signature], ["gem", "push", path, "--host", @registry, "--attestation", signature]]
  end

  # @return [String, nil] the checksum
  def published(spec)
    uri = URI("#{@registry}/api/v2/rubygems/#{spec.name}/versions/#{spec.version}.json?platform=#{spec.platform}")
    response = Net::HTTP.get_response(uri)
    case response
    when Net::HTTPNotFound then nil
    when Net::HTTPOK then JSON.parse(response.body).fetch("sha")
    else raise "#{uri}: #{response.code} #{response.message}"
    end
  end
end
