# frozen_string_literal: true

module Heddle
  module Lab
    module Report
      # Runs as a page in which readers choose what is drawn.
      class Page
        # @param runs [Array<Run>] at least one
        # @param title [String]
        def initialize(runs, title: "Results of heddle bench")
          @runs = runs
          @title = title
        end

        # @return [String]
        def to_html
          Document.html("page.html", styles: %w[page.css], scripts: %w[common.js page.js], title: @title, data: data)
        end

        # @param path [String] its folder is made where it is missing
        # @return [void]
        # @raise [Error] when the file cannot be written
        def write(path) = Document.write(path, to_html)

        private

        def data
          sizes = 1..@runs.map(&:rounds).max
          {"resampling" => sizes.to_h { |size| [size, weights(size)] }, "runs" => @runs.map(&:to_h)}
        end

        def weights(size) = Statistics.resampling(size).map { |low, high, share| [low, high, share.round(12)] }
      end
    end
  end
end
