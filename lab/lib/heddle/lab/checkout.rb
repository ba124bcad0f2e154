# frozen_string_literal: true

module Heddle
  module Lab
    # The checkout from which the lab runs, if it runs from one. An installed gem may lie in the checkout of somebody's
    # program, whose revision says nothing of Heddle.
    module Checkout
      ROOT = File.expand_path("../../../..", __dir__)
      private_constant :ROOT

      module_function

      # @return [String, nil] the revision, short or as a tag, with "+" if there are changes
      def describe = ours? ? git("describe", "--always", "--dirty=+") : nil

      # @return [Hash{String => Object}, nil] "git" with the whole revision, "dirty" and "committed_at"
      def revision
        return unless ours?

        commit, time = git("log", "-1", "--format=%H %cI")&.split
        {"git" => commit, "dirty" => describe.to_s.end_with?("+"), "committed_at" => time} if commit
      end

      # @param before [String] a whole revision
      # @param after [String]
      # @return [Array<Array(String, String)>, nil] revision and subject of each commit that only the second one has,
      #   the newest first; nil where the checkout does not have both
      def commits(before, after)
        return unless ours?

        git("log", "--format=%H %s", "#{before}..#{after}", "--")&.lines(chomp: true)&.map { |line| line.split(" ", 2) }
      end

      def ours? = git("rev-parse", "--show-toplevel") == File.realpath(ROOT)
      private_class_method :ours?

      # @return [String, nil] nil without git, and where it refuses
      def git(*arguments)
        output = IO.popen(["git", "-C", ROOT, *arguments], err: File::NULL, &:read)
        output.force_encoding(Encoding::UTF_8).scrub.strip if $?.success?
      rescue Errno::ENOENT
        nil
      end
      private_class_method :git
    end
  end
end
